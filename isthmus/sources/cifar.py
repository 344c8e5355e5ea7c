"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009, "Learning Multiple Layers of Features from Tiny Images").

Two layouts are accepted, looked for in ``cifar10/`` (``cifar100/``) and in the data folder itself:
- the authors' Python batches, in ``cifar-10-batches-py/`` (``cifar-100-python/``), checked by MD5. They are pickles,
  but are read here by their data opcodes alone, so that nothing in them can run.
- Hugging Face's parquet files ``train-*-of-*.parquet`` and ``test-*-of-*.parquet`` of PNG images. They are decoded once
  into a cache. CIFAR-10 is checked by its decoded content, whatever the order of its rows.
Or they come from the Hugging Face hub (``hub=uoft-cs/cifar10``). All give the same splits and the same fingerprint.
"""

from __future__ import annotations

import hashlib
import io
import pickletools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from isthmus.core.errors import UserError
from isthmus.core.files import sha256
from isthmus.core.protocols import Component, Data, Source, Split
from isthmus.sources.cache import cache_array, decode_all
from isthmus.sources.files import locate_shards, name_errors, not_found, read_bytes
from isthmus.sources.images import channels_first, open_image
from isthmus.sources.pictures import list_hub_pictures, open_hub, read_labels
from isthmus.sources.splits import HeldOutRows, Rows, check_splits, partition

if TYPE_CHECKING:
    from PIL.Image import Image

NAMES = {"cifar10": "CIFAR10", "cifar100": "CIFAR100"}
MEANINGS = {
    "cifar10": "CIFAR-10: 60,000 colour images of 32×32 pixels in ten classes.",
    "cifar100": "CIFAR-100: 60,000 colour images of 32×32 pixels in a hundred classes.",
}

SHAPE = (3, 32, 32)
FINE = """apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm"""
COARSE = """aquatic_mammals fish flowers food_containers fruit_and_vegetables household_electrical_devices
household_furniture insects large_carnivores large_man-made_outdoor_things large_natural_outdoor_scenes
large_omnivores_and_herbivores medium_mammals non-insect_invertebrates people reptiles small_mammals trees vehicles_1
vehicles_2"""

# What CIFAR's pickled arrays refer to. The names are compared, never looked up.
GLOBALS = ("numpy.core.multiarray _reconstruct", "numpy ndarray", "numpy dtype")


class CIFAR10(Source):
    """uint8 (rows, 3, 32, 32), ten classes; 45,000 / 5,000 of the training images, and the official 10,000 to test."""

    class Config(Component):
        validation: HeldOutRows = 5_000
        """Training rows held out for validation."""
        rows: Rows | None = None
        """How many of the other training rows to use, for a quick study (default: all)."""
        split_seed: int = 0
        """Seed of the choice of these rows; the run's seed does not change it."""
        hub: str | None = None
        """A data set of the Hugging Face hub, or a folder of parquet files, to read instead of local files."""
        revision: str | None = None
        """Branch, tag or commit on the hub."""

    batch_folder = "cifar-10-batches-py"
    batches: ClassVar[dict[str, dict[str, str]]] = {
        "train": {
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        },
        "test": {"test_batch": "40351d587109b95175f43aff81a1287e"},
    }
    # SHA-256 of the sorted digests of all rows, see `row_digests`.
    content: ClassVar[dict[str, str]] = {
        "train": "cf87a488c1980a3f390ac47069a9149489d94e5ee94407e05976e3fc3f30e51c",
        "test": "90009e338f5430dc6cfdd36ddbde71969caa8b316f2c0243f322acf8345bd788",
    }
    archive = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
    repository = "uoft-cs/cifar10"
    shard_folders = ("cifar10", "cifar10/plain_text", "cifar10/data")
    batch_label, shard_label = "labels", "label"
    classes: Sequence[str] = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

    def load(self, data_dir: Path) -> Data:
        images, labels = self._read(data_dir, "train")
        test_images, test_labels = self._read(data_dir, "test")
        digests = row_digests(images, labels)
        self._check_content("train", digests, data_dir)
        self._check_content("test", row_digests(test_images, test_labels), data_dir)
        # The two layouts store the training rows in different orders. Sorted, they are the same before the seeded draw.
        order = np.array(sorted(range(len(labels)), key=digests.__getitem__))
        parts = partition(len(labels), [self.config.validation], self.config.split_seed)
        if self.config.rows is not None:
            if self.config.rows > len(parts[0]):
                raise UserError(f"source.rows={self.config.rows}: validation leaves {len(parts[0])} training rows")
            parts[0] = parts[0][: self.config.rows]
        train, validation = (Split(images[order[part]], labels[order[part]]) for part in parts)
        return check_splits(self.config.name, [train, validation, Split(test_images, test_labels)], self.classes)

    def _read(self, data_dir: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
        if self.config.hub:
            return self._read_hub(data_dir, part)
        name = self.config.name
        folders = [data_dir / self.batch_folder, data_dir / name / self.batch_folder]
        for folder in folders:
            if folder.is_dir():
                return self._read_batches(folder, part)
        if shards := locate_shards(data_dir, self.shard_folders, part):
            return self._read_shards(shards, part)
        places = [*folders, *(data_dir / folder for folder in self.shard_folders)]
        advice = (
            f"unpack {self.archive} in {data_dir}, or run: "
            f"hf download {self.repository} --repo-type dataset --local-dir {data_dir / name}, "
            f"or set source.hub={self.repository}"
        )
        batches = " and ".join(self.batches[part])
        raise not_found(f"{name}'s Python batches ({batches}) or {part}-*-of-*.parquet", places, advice)

    def _read_batches(self, folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
        images, labels = [], []
        for name, md5 in self.batches[part].items():
            path = folder / name
            if not path.is_file():
                raise not_found(name, [folder], f"unpack {self.archive} again")
            raw = read_bytes(path)
            if hashlib.md5(raw, usedforsecurity=False).hexdigest() != md5:
                raise UserError(f"{path} is damaged or altered: its MD5 is not {md5}; unpack {self.archive} again")
            pixels, classes = read_batch(raw, path, self.batch_label)
            images.append(pixels)
            labels.append(classes)
        return np.concatenate(images), np.concatenate(labels)

    def _read_shards(self, shards: list[Path], part: str) -> tuple[np.ndarray, np.ndarray]:
        import pyarrow.parquet as parquet

        def column(name: str) -> list[Any]:
            values: list[Any] = []
            for shard in shards:
                with name_errors(shard, f"a parquet file with the column {name!r}"):
                    values += parquet.ParquetFile(shard).read(columns=[name])[name].to_pylist()
            return values

        with name_errors(shards[0].parent, "labels of whole numbers"):
            labels = np.array(column(self.shard_label), np.int64)
        if not len(labels):
            raise UserError(f"{shards[0].parent} holds no {part} rows")

        def opener() -> Callable[[int], Image]:
            images = [image["bytes"] for image in column("img")]
            return lambda row: open_png(images[row], f"{self.config.name}, {part}, row {row}")

        key = {"files": [sha256(shard) for shard in shards]}
        return self._decode(part, key, len(labels), opener), labels

    def _read_hub(self, data_dir: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
        repo = self.config.hub
        dataset = open_hub(data_dir, repo, part, revision=self.config.revision)
        labels = read_labels(dataset, repo, self.shard_label)
        pictures = list_hub_pictures(dataset, repo, "img")
        return self._decode(part, pictures.key, len(labels), lambda: pictures.open), labels

    def _decode(
        self, part: str, key: Mapping[str, Any], rows: int, opener: Callable[[], Callable[[int], Image]]
    ) -> np.ndarray:
        """All images of a part. ``opener`` is called only if the cache does not hold them."""

        def fill(array: np.ndarray) -> None:
            open_row = opener()

            def decode(row: int) -> np.ndarray:
                pixels = channels_first(open_row(row))
                if pixels.shape != SHAPE:
                    where = f"{self.config.name}, {part}"
                    raise UserError(f"{where}: the image of row {row} has the shape {pixels.shape}, not {SHAPE}")
                return pixels

            decode_all(array, range(rows), decode, f"decoding {self.config.name}")

        return cache_array(self.config.name, key, (rows, *SHAPE), fill).array

    def _check_content(self, part: str, digests: list[bytes], data_dir: Path) -> None:
        content = hashlib.sha256(b"".join(sorted(digests))).hexdigest()
        if self.content.get(part, content) != content:
            raise UserError(
                f"the {part} images and labels found under {data_dir} are not {self.config.name}'s; "
                f"download {self.repository} again, or read other data with the source 'hub'"
            )


class CIFAR100(CIFAR10):
    """uint8 (rows, 3, 32, 32), a hundred classes, or twenty coarse ones; splits as in CIFAR-10."""

    class Config(CIFAR10.Config):
        labels: Literal["fine", "coarse"] = "fine"
        """The hundred classes, or their twenty groups."""

    batch_folder = "cifar-100-python"
    batches: ClassVar[dict[str, dict[str, str]]] = {
        "train": {"train": "16019d7e3df5f24257cddd939b257f8d"},
        "test": {"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
    }
    content: ClassVar[dict[str, str]] = {}
    archive = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
    repository = "uoft-cs/cifar100"
    shard_folders = ("cifar100", "cifar100/cifar100", "cifar100/data")

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.batch_label, self.shard_label = f"{config.labels}_labels", f"{config.labels}_label"
        self.classes = (FINE if config.labels == "fine" else COARSE).split()


def row_digests(images: np.ndarray, labels: np.ndarray) -> list[bytes]:
    """A digest per row, of its label (one byte) and its pixels."""
    heads = labels.astype(np.uint8)
    rows = zip(heads, images, strict=True)
    return [hashlib.blake2b(head.tobytes() + image.tobytes(), digest_size=16).digest() for head, image in rows]


def open_png(image: Any, name: str) -> Image:
    if not isinstance(image, bytes):
        raise UserError(f"{name} holds no image bytes")
    return open_image(image, name)


def read_batch(raw: bytes, path: Path, label_key: str) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of one Python batch."""
    with name_errors(path, "a CIFAR batch"):
        batch = read_pickled_data(raw)
        _, shape, dtype, fortran_order, values = batch["data"]["state"]
        if dtype["arguments"][0] != "u1" or fortran_order or shape[1:] != (3072,):
            raise ValueError("its data are not rows of 3072 bytes")
        images = np.frombuffer(bytearray(values, "latin-1"), np.uint8).reshape(-1, *SHAPE)
        labels = np.array(batch[label_key], np.int64)
        if len(images) != shape[0] or labels.shape != (len(images),):
            raise ValueError(f"{len(images)} images and {len(labels)} labels, where its header says {shape[0]}")
        return images, labels


def read_pickled_data(raw: bytes) -> Any:
    """The dicts, lists, tuples, numbers and strings of a Python 2 pickle.

    Only the opcodes that CIFAR's batches consist of are understood. None of them imports, looks up or calls anything: a
    call that the pickle asks for becomes a dict of the function's name, the arguments and the state.
    """
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[Any, Any] = {}

    def since_mark() -> list[Any]:
        start = marks.pop()
        items, stack[start:] = stack[start:], []
        return items

    for opcode, argument, _ in pickletools.genops(io.BytesIO(raw)):
        match opcode.name:
            case "PROTO" | "STOP":
                pass
            case "SHORT_BINSTRING" | "BINSTRING" | "BININT" | "BININT1" | "BININT2":
                stack.append(argument)
            case "GLOBAL" if argument in GLOBALS:
                stack.append(argument)
            case "NONE":
                stack.append(None)
            case "NEWFALSE" | "NEWTRUE":
                stack.append(opcode.name == "NEWTRUE")
            case "EMPTY_DICT":
                stack.append({})
            case "EMPTY_LIST":
                stack.append([])
            case "MARK":
                marks.append(len(stack))
            case "BINPUT" | "LONG_BINPUT":
                memo[argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                size = int(opcode.name[-1])
                stack[-size:] = [tuple(stack[-size:])]
            case "TUPLE":
                stack.append(tuple(since_mark()))
            case "APPENDS":
                items = since_mark()
                stack[-1].extend(items)
            case "SETITEMS":
                items = since_mark()
                stack[-1].update(zip(items[::2], items[1::2], strict=True))
            case "REDUCE":
                stack[-2:] = [{"function": stack[-2], "arguments": stack[-1]}]
            case "BUILD":
                state = stack.pop()
                stack[-1]["state"] = state
            case _:
                raise ValueError(f"CIFAR's batches have no {opcode.name} {str(argument or '')[:60]}".rstrip())
    return stack[-1]
