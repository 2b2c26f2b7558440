"""Who a caller is: API keys, worker tokens."""
