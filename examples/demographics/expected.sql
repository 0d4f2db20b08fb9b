-- The views by_lookup and by_local_copy: each event with the profile of its user, from the same files.
SELECT a.user_id, a.action, a."at", p.name, p.age
FROM read_json('activity.jsonl', columns = {user_id: 'VARCHAR', action: 'VARCHAR', 'at': 'TIMESTAMP'}) a
LEFT JOIN read_json('profiles.jsonl', columns = {user_id: 'VARCHAR', name: 'VARCHAR', age: 'INTEGER'}) p ON a.user_id = p.user_id
