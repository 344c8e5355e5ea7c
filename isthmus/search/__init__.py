"""The best network for somebody's data: what is asked, what is tried, what it is compared with, and the answer."""
