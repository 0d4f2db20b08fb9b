"""pgoutput decoded by columns: messages become changes of tables, each with its position."""
