-- The view outcomes: every impression with its clicks of the ten minutes after it, or alone.
SELECT i.impression, i.ad, i."at", c."user", c."at" AS clicks_at
FROM read_json('impressions.jsonl', columns = {impression: 'BIGINT', ad: 'VARCHAR', 'at': 'TIMESTAMP'}) i
LEFT JOIN read_json('clicks.jsonl', columns = {impression: 'BIGINT', 'user': 'VARCHAR', 'at': 'TIMESTAMP'}) c
    ON i.impression = c.impression AND c."at" BETWEEN i."at" AND i."at" + INTERVAL 10 MINUTES
