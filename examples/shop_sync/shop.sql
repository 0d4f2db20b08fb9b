create table customers (customer_id int primary key, customer text not null, country text not null);
create table products (product_id int primary key, product text not null, description text, price numeric(10, 2) not null);
create table orders (
    order_id int primary key,
    customer_id int not null references customers,
    product_id int not null references products,
    quantity int not null
);
insert into customers values (1, 'Alice', 'DE'), (2, 'Bob', 'FR');
insert into products values
    (1, 'red shoes', 'light shoes for running', 60.00),
    (2, 'rain coat', 'a coat for rainy days', 90.00),
    (3, 'blue scarf', null, 12.50);
insert into orders values (10, 1, 1, 1), (11, 2, 3, 2), (12, 1, 2, 1);
