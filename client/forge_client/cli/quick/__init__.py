"""Command lines that are answered without typer, pydantic and httpx: those typed all day.

Each answers only what is plain, and declines everything else before anything is said or done: then
the whole command answers, as if nothing had been asked before. What the commands and their options
are called is read from `commands.json`, which is made from the whole command.
"""
