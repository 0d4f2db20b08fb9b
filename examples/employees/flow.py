"""Employees with their departments: a view that follows every change of either."""

from penstock import Flow, agg

flow = Flow("employees")

employees = flow.table("employees", "employee_id long, name string, department_id long, salary long", key="employee_id")
departments = flow.table("departments", "department_id long, department string", key="department_id")

staff = employees.join(departments, on="department_id", how="left")
staff.view("staff")
staff.group_by("department").agg(people=agg.count(), most=agg.max("salary"), payroll=agg.sum("salary")).view("payroll")
