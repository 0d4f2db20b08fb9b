create table items (sku varchar(20) primary key, stock int);
create table orders (nr int primary key, sku varchar(20), pieces int, at datetime(3));
insert into items values ('apple', 100), ('pear', 50);
