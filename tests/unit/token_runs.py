"""Settings of tiny runs on tokens: Sudoku, a tokenizer, and a masked model of its tokens."""

SETTINGS = {
    "source": {"name": "sudoku", "givens": [70], "train": 16, "validation": 4, "test": 6},
    "task": {"name": "sudoku", "symmetries": True, "by_givens": [70]},
    "model": {
        "name": "hyper_set",
        "d": 16,
        "num_heads": 2,
        "iterations": 3,
        "positions": "learned",
        "step_sizes": "X_0",
    },
    "train": {"epochs": 1, "batch_size": 8},
    "threads": 1,
}
DIGITS = {"name": "digits", "validation": 20, "test": 60}
TOKENIZER = {
    "source": DIGITS,
    "task": {"name": "tokenization"},
    "model": {"name": "vq_tokenizer", "codes": 16, "stride": 2, "width": 8},
    "train": {"epochs": 1, "batch_size": 256, "learning_rate": 5e-3},
    "threads": 1,
}


def masked(tokenizer, **source):
    return {
        "source": {"name": "tokens", "tokenizer": tokenizer, "images": DIGITS, **source},
        "task": {"name": "masked_tokens", "decoding_steps": 4},
        "model": {
            "name": "hyper_set", "d": 16, "num_heads": 2, "iterations": 2, "step_sizes": "X_0", "time_mlp": False,
        },
        "train": {"epochs": 1, "batch_size": 256},
        "threads": 1,
    }  # fmt: skip
