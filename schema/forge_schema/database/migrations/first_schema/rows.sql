-- The rows that every queue has.
INSERT INTO identity (id) VALUES (1);
INSERT INTO sweeper (id) VALUES (1);
INSERT INTO notifier (id) VALUES (1);
INSERT INTO thinned (subject, width_s)
VALUES ('metric', 60), ('metric', 600), ('sample', 60), ('sample', 600);
