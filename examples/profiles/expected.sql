-- The view who_did_what, by DuckDB's own as-of join over the same files.
SELECT a.user_id, a.action, a."at", p.name, p.age, p.since, p.since AS version_time
FROM read_json('activity.jsonl', columns = {user_id: 'VARCHAR', action: 'VARCHAR', 'at': 'TIMESTAMP'}) a
ASOF LEFT JOIN read_json('profiles.jsonl', columns = {user_id: 'VARCHAR', name: 'VARCHAR', age: 'INTEGER', since: 'TIMESTAMP'}) p
    ON a.user_id = p.user_id AND a."at" >= p.since
