"""Payments that look like fraud: each is told to a webhook, and cards that are used too often in a minute are mailed about.

HOOK_URL and SMTP_URL say where to; the receivers of the README listen on this machine.
"""

import os

from penstock import Flow, Tumbling, agg
from penstock.sinks import email, webhook

HOOK_URL = os.environ.get("HOOK_URL", "http://127.0.0.1:8080/fraud")
SMTP_URL = os.environ.get("SMTP_URL", "smtp://127.0.0.1:8025")
PAYMENTS = "payment_id string, card string, amount double, country string, home string, at timestamp"

flow = Flow("fraud_alerts")
payments = flow.stream("payments", PAYMENTS, time="at", lateness="10 seconds")

abroad = payments.where("amount > 500 and country <> home")
abroad.sink(
    webhook(
        HOOK_URL,
        hosts=["127.0.0.1"],
        sign="env:HOOK_SECRET",
        template={"payment": "{payment_id}", "text": "card {card}: {amount} in {country}"},
        backoff="100 ms",
    ),
    name="abroad",
)

often = (
    payments.window(Tumbling("1 minute"), by="card").agg(n=agg.count(), total=agg.sum("amount"), name="per_minute").where("n >= 4")
)
often.sink(
    email(
        SMTP_URL,
        sender="alerts@bank.example",
        to="fraud@bank.example",
        subject="card {card} was used {n} times in a minute",
        body="{n} payments, {total} in all, between {window_start} and {window_end}\n",
        backoff="100 ms",
    ),
    name="often",
)
