"""Changes to files, of bytes or of a database's cells."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import struct
from pathlib import Path
from typing import Any


def damage(draw: random.Random, file: Path, others: list[Path]) -> str:
    """Change a file in one of many ways; says in which."""
    if file.suffix == ".db" and draw.random() < 0.8:
        return damage_cell(draw, file)
    content = bytearray(file.read_bytes())
    header = 8 + struct.unpack("<Q", content[:8])[0] if file.name == "bare.safetensors" else len(content)
    where = draw.randrange(max(1, min(header, len(content))))
    digits = [place for place, byte in enumerate(content[:header]) if 48 <= byte <= 57]
    alike = [other for other in others if other.name == file.name and other != file]
    is_text = file.suffix in (".json", ".jsonl", ".csv") or file.name == "bare.safetensors"
    way = draw.choice(["flip", "cut", "extend", "zero", "swap", "empty", "remove", "noise"] + ["digit"] * 6 * is_text)
    if alike and draw.random() < 0.2:
        way = "foreign"
    if way == "flip":
        content[where] ^= 1 << draw.randrange(8)
    elif way == "cut":
        del content[where:]
    elif way == "extend":
        content += draw.choice([b"\n", b"0", bytes(draw.randbytes(50)), bytes(content[-100:])])
    elif way == "zero":
        content[where : where + 16] = bytes(len(content[where : where + 16]))
    elif way == "swap":
        half = draw.randrange(1, 64)
        content[where : where + 2 * half] = content[where + half : where + 2 * half] + content[where : where + half]
    elif way == "digit" and digits:
        where = draw.choice(digits)
        content[where] = draw.choice([byte for byte in b"0123456789" if byte != content[where]])
    elif way == "noise":
        content = bytearray(draw.randbytes(300))
    elif way == "foreign":
        content = bytearray(draw.choice(alike).read_bytes())
    elif way == "empty":
        content.clear()
    if way == "remove":
        file.unlink()
    else:
        file.write_bytes(content)
    return f"{way} at {where}" if way in ("flip", "cut", "zero", "swap", "digit") else way


def damage_cell(draw: random.Random, file: Path) -> str:
    """A change that SQLite itself thinks nothing of."""
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        tables = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        filled = [name for name in tables if database.execute(f'select count(*) from "{name}"').fetchone()[0]]
        table = draw.choice(filled)
        row = draw.choice(database.execute(f'select rowid from "{table}"').fetchall())[0]
        column = draw.choice([line[1] for line in database.execute(f'pragma table_info("{table}")')])
        (value,) = database.execute(f'select "{column}" from "{table}" where rowid = ?', (row,)).fetchone()
        way = draw.choice(["digit"] * 6 + ["delete", "delete", "null", "text", "drop"])
        done = f"{way} {table}.{column} of row {row}, {str(value)[:100]!r}"
        if way == "drop":
            database.execute(f'drop table "{table}"')
        elif way == "delete":
            database.execute(f'delete from "{table}" where rowid = ?', (row,))
        else:
            new = {"null": None, "text": "{"}.get(way, other_digit(draw, value))
            with contextlib.suppress(sqlite3.IntegrityError):
                database.execute(f'update "{table}" set "{column}" = ? where rowid = ?', (new, row))
            done += f" → {str(new)[:100]!r}"
    return done


def other_digit(draw: random.Random, value: Any) -> Any:
    text = str(value)
    digits = [place for place, letter in enumerate(text) if letter in "0123456789"]
    if not digits:
        return draw.choice([1, "x", None])
    where = draw.choice(digits)
    text = f"{text[:where]}{draw.choice([d for d in '0123456789' if d != text[where]])}{text[where + 1 :]}"
    return int(text) if isinstance(value, int) else float(text) if isinstance(value, float) else text
