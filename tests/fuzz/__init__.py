"""A fuzz of our own: ``make fuzz``, or ``python -m tests.fuzz --only config:1234`` for one case again.

Every case attacks in a process and a folder of its own. It fails in one of three ways:

    wrong       another result than without the attack, and no word about it
    traceback   an exception that nobody foresaw, or an error that is no short line
    endless     more time or memory than what was given can need

What is wrong depends on the kind of attack; the module of each kind says how it is noticed:

    configs.py   mutated configs, in files and as overrides; and tables in other units
    files.py     damaged runs, studies, exports and data
    commands.py  command lines, streams and surroundings
    kills.py     SIGKILL and SIGTERM at any moment
"""
