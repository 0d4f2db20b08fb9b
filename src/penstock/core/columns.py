"""System columns: the name of every column that the system adds to rows, who sets it, and who sees it.

Users name no column with two underscores at its beginning (core/names.py). Columns that only one file knows stand there.
"""

# What users see beside the columns of a topic, where it is read: set by the log's consumer, seen in Python, SQL, Spark and the CLI.
VALUE = "value"  # binary: the record of a raw topic, set by its producer; its only column
SHOWN_PARTITION = "partition"  # int32: the partition that the row was read from
SHOWN_OFFSET = "offset"  # int64: its offset there
SHOWN_KEY = "key"  # binary: the key of the record, null where it has none
SHOWN_TIME = "time"  # timestamp: the event time
SHOWN_APPEND_TIME = "append_time"  # timestamp: when the log took the row
SHOWN_HEADERS = "headers"  # map<string, binary>: what the producer said beside the row
SHOWN_OP = "op"  # string: "delete" where the record says that the row of its key is gone, else null

# What a topic stores beside its own columns: set by intake, seen by logs, consumers and sources. Users write KEY and OP in the
# JSON of a delete; OP, POSITION and WATERMARK are set by flows too, see below.
KEY = "__key"  # binary, may be null; left out where all are
HEADERS = "__headers"  # map<string, binary>; left out where there are none
EVENT_TIME = "__time"  # timestamp: event time; only where the topic's time is not a column of the batch

# What a log adds to stored rows when it gives them out: set by the log, seen by consumers and sources; a producer cannot give it.
OFFSET = "__offset"  # int64: offset of each row, only where they are not base, base + 1, …
APPENDED = "__appended"  # int64: append time of each row, only where they have several
BEFORE = "__before"  # int64: greatest plausible event time of all earlier rows, only where some that were compacted away count
BAD = "__bad"  # string: why the record could not be read, null where it could; only where one could not
RAW = "__raw"  # binary: the value of such a record, as it is; beside BAD

# What rows carry between the steps of a flow: set by sources and kernels, seen by steps and sinks, never by users.
TIME = "__t"  # int64: the row's event time in microseconds
WATERMARK = "__w"  # int64: W(r), NEVER once the row is judged or derived; stored in topics written by a flow, null = never late
POSITION = "__pos"  # binary: where the row comes from, compares as the order of ties; stored in topics written by a flow
OP = "__op"  # int8 as core.change.Op: in updating streams and versions of tables; stored in typed topics where rows are deleted
HASH = "__h"  # uint64: hash of the key of the step that the row goes to
APPEND_TIME = "__app"  # int64: when the log took the row; only where a step below looks at it
ADDRESS = "__at"  # int64: partition << 44 | offset, of records that come in the order of the log; POSITION is made from it
LEFT = "__left"  # binary: of a pair, where its left row comes from; set by joins, seen by `why`
LEFT_TIME = "__left_t"  # int64: its time
RIGHT = "__right"  # binary: the same of the right row
RIGHT_TIME = "__right_t"  # int64
FAILED = "__failed"  # string: which aggregate failed and why, null where none did; set by aggregates, seen by the task
TRIED = "__tried"  # struct: how columns of tried expressions begin, null where one raised; set by SQL steps, seen by them alone
HIDDEN = "__in"  # how columns begin that a flow makes for the arguments of aggregates; seen by that step alone

# What a view stores beside its own columns: set by its sink, seen by views and in `view history`.
SINCE = "__since"  # int64: the epoch from which the row holds
UNTIL = "__until"  # int64: the epoch from which it holds no more
DELETED = "__deleted"  # bool: the key was deleted then
LIVE = "__live"  # int: of an incoming row, 0 deletes its key, 1 sets it
NUMBER = "__n"  # int64: numbers the rows of a table in the order in which they came
CRC = "__crc"  # int64: checksum of the row

# What a join of tables keeps in its state: set and seen by its kernel.
PARTNERS = "__n"  # int64: how many rows one side has of a key

# Only while a function runs.
INDEX = "__i"  # where a row stood in its table
