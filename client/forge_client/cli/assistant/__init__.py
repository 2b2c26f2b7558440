"""`forge mcp`: what an assistant may read and do, in short answers that name the next step."""
