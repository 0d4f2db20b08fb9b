-- The view found: each search with the clicks that came of it.
SELECT s."user", s.query, c.url, s."at", c."at" AS clicked
FROM read_json('searches.jsonl', columns = {'user': 'BIGINT', query: 'VARCHAR', results: 'BIGINT', 'at': 'TIMESTAMP'}) s
JOIN read_json('clicks.jsonl', columns = {'user': 'BIGINT', url: 'VARCHAR', rank: 'BIGINT', 'at': 'TIMESTAMP'}) c
    ON s."user" = c."user" AND c."at" BETWEEN s."at" AND s."at" + INTERVAL 5 MINUTES AND c.rank <= s.results
