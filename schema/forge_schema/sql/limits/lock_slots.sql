-- Waits for every claim and every end under way and holds off later ones, so that the number of
-- running jobs stays as it is while slots are made.
LOCK TABLE slot IN SHARE ROW EXCLUSIVE MODE
