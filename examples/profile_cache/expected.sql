-- The view profile_cache: the newest envelope of each user by its place in the database's log, unless it is a delete.
SELECT after.user_id, after.name, after.city
FROM read_json('users_cdc.jsonl', columns = {
    op: 'VARCHAR', before: 'STRUCT(user_id BIGINT, name VARCHAR, city VARCHAR)', after: 'STRUCT(user_id BIGINT, name VARCHAR, city VARCHAR)',
    source: 'STRUCT(lsn BIGINT, ts_ms BIGINT)'})
QUALIFY source.lsn = max(source.lsn) OVER (PARTITION BY coalesce(after.user_id, before.user_id)) AND op <> 'd'
