-- Gives turns that nobody gave, and those of jobs that are in no place any more.
SELECT forge_mend_turns() AS given
