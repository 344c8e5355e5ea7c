COUNT, AT_ONCE, SECONDS = 1, 1, 60.0
KILLS=1
def prepare(store): pass
def attack(number, draw, store): return "x"
