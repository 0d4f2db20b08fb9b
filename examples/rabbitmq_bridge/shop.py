"""A shop that knows nothing of penstock: it sends its orders to a RabbitMQ, each with an id, and again if it is not sure.

python shop.py amqp://localhost orders
"""

import json
import sys

import pika

ITEMS = {"apple": 3, "pear": 2, "plum": 1}  # and how many pieces of it an order has
ORDERS = [{"order_id": f"o{number}", "item": list(ITEMS)[number % 3]} for number in range(300)]


def main(url: str, exchange: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number, order in enumerate(ORDERS):
            properties = pika.BasicProperties(message_id=order["order_id"], delivery_mode=2)
            body = json.dumps({**order, "pieces": ITEMS[order["item"]]}).encode()
            for _ in range(2 if number % 50 == 0 else 1):  # the answer was lost, so it is sent once more
                channel.basic_publish(exchange, "", body, properties, mandatory=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
