CREATE TABLE profiles (user_id TEXT PRIMARY KEY, name TEXT NOT NULL, age INTEGER NOT NULL);
INSERT INTO profiles VALUES ('UserID1', 'Alice', 28), ('UserID2', 'Bob', 35);
