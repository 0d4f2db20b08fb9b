-- The view named_orders: the newest row of each key in either file, joined.
WITH o AS (
    SELECT order_id, last(x ORDER BY n) AS x FROM (
        SELECT row_number() OVER () AS n, order_id, struct_pack(user_id, amount) AS x
        FROM read_json('orders.jsonl', columns = {order_id: 'VARCHAR', user_id: 'BIGINT', amount: 'DOUBLE'}))
    GROUP BY order_id
), u AS (
    SELECT user_id, last(name ORDER BY n) AS name FROM (
        SELECT row_number() OVER () AS n, * FROM read_json('users.jsonl', columns = {user_id: 'BIGINT', name: 'VARCHAR'}))
    GROUP BY user_id
)
SELECT o.x.user_id, o.order_id, o.x.amount, u.name FROM o JOIN u ON o.x.user_id = u.user_id
