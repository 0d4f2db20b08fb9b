-- The view order_status: a full join within half an hour, over the same files.
SELECT order_id, o.product, o.amount, o."at", p.paid, p."at" AS payments_at,
       CASE WHEN p.paid IS NULL THEN 'Unpaid' WHEN o.product IS NULL THEN 'No order' ELSE 'Paid' END AS status
FROM read_json('orders.jsonl', columns = {order_id: 'VARCHAR', product: 'VARCHAR', amount: 'BIGINT', 'at': 'TIMESTAMP'}) o
FULL JOIN read_json('payments.jsonl', columns = {order_id: 'VARCHAR', paid: 'BIGINT', 'at': 'TIMESTAMP'}) p
    USING (order_id)
