begin; insert into orders values (1, 'apple', 3, '2026-05-01 10:00'); update items set stock = stock - 3 where sku = 'apple'; commit;
begin; insert into orders values (2, 'pear', 9, '2026-05-01 10:01'); update items set stock = stock - 9 where sku = 'pear'; rollback;
begin; insert into orders values (3, 'pear', 1, '2026-05-01 10:02'); update items set stock = stock - 1 where sku = 'pear'; commit;
alter table orders add column note varchar(100);
begin; update orders set note = 'gift' where nr = 1; delete from orders where nr = 3; update items set stock = 50 where sku = 'pear'; commit;
