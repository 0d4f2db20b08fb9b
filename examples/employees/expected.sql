-- The view staff: the newest row of each key in either file, joined.
WITH e AS (
    SELECT employee_id, last(x ORDER BY n) AS x FROM (
        SELECT row_number() OVER () AS n, employee_id, struct_pack(name, department_id, salary) AS x
        FROM read_json('employees.jsonl', columns = {employee_id: 'BIGINT', name: 'VARCHAR', department_id: 'BIGINT', salary: 'BIGINT'}))
    GROUP BY employee_id
), d AS (
    SELECT department_id, last(department ORDER BY n) AS department FROM (
        SELECT row_number() OVER () AS n, * FROM read_json('departments.jsonl', columns = {department_id: 'BIGINT', department: 'VARCHAR'}))
    GROUP BY department_id
)
SELECT e.x.department_id, e.employee_id, e.x.name, e.x.salary, d.department FROM e LEFT JOIN d ON e.x.department_id = d.department_id
