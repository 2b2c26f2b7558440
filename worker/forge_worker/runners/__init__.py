"""Where jobs run: containers or processes behind one interface."""
