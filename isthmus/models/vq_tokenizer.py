"""An image tokenizer: each square of ``stride`` pixels is encoded as the index of its nearest code.

Paper: Neural Discrete Representation Learning (van den Oord, Vinyals, Kavukcuoglu), with the codebook learned by
moving averages (its appendix A). Hyper-SET's masked images need such tokens.

    paper                here
    z_e(x)               ``encode``: unit vectors, one for each square
    e_k, K, D            ``codebook.codes``, ``codes`` of them, ``d_code`` wide
    z_q(x)               the code with the largest inner product
    N_k, m_k, γ          ``codebook.counts``, ``codebook.sums``, ``decay``

Differs from the paper:
    z_e, whitened channel by channel, and the codes are on the unit sphere, so the encoder's output cannot grow away
    from the codes. The commitment term, which prevents that in the paper, is left out: the loss is that of the picture
    alone. A code that is rarely chosen is replaced by a recent output of the encoder (``revive_below``), so that the
    whole codebook stays in use. Each convolution with stride 2 halves the picture and doubles the width.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Self

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn

from isthmus.core.errors import UserError
from isthmus.core.protocols import ModelConfig, Signature

NAMES = {"vq_tokenizer": "VQTokenizer"}
KIND = "Tokenizers"
TITLE_FIELDS = ("codes", "stride", "width", "blocks")

Images = Float[Tensor, "batch channels height width"]
Codes = Float[Tensor, "batch d_code down across"]
Size = Annotated[int, Field(ge=1, le=2**16)]


class VQTokenizerConfig(ModelConfig):
    input_shape: tuple[Size, Size, Size] | None = None
    """Channels, height and width of an image; a run takes it from its task."""
    codes: Annotated[int, Field(ge=2, le=2**15)] = 512
    """K, the size of the codebook."""
    stride: Annotated[int, Field(ge=2, le=256)] = 4
    """Pixels along one side of the square of a token: a power of two."""
    d_code: Size = 8
    """Width of a code."""
    width: Size = 64
    """Channels at the size of the tokens; half as many at each larger size of the picture."""
    blocks: Annotated[int, Field(ge=0, le=100)] = 1
    """Residual blocks at each size of the picture."""
    decay: Annotated[float, Field(gt=0, lt=1)] = 0.99
    """γ of the codes' moving averages."""
    revive_below: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """A code is replaced when it is chosen less often than this fraction of the mean over codes."""

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if self.stride & (self.stride - 1):
            raise ValueError(f"stride={self.stride} is not a power of two")
        if self.width % (self.stride // 2):
            raise ValueError(f"width={self.width} cannot be halved until stride={self.stride} is 2")
        if self.input_shape is None:
            return self
        down, across = self.input_shape[1:]
        if down % self.stride or across % self.stride:
            raise ValueError(f"stride={self.stride} does not divide an image of {down}×{across} pixels")
        if down * across == self.stride**2:
            raise ValueError(f"stride={self.stride} leaves one token for an image of {down}×{across} pixels")
        return self

    @property
    def image(self) -> tuple[int, int, int]:
        if self.input_shape is None:
            raise UserError(f"{self.name} needs input_shape where no task gives it")
        return self.input_shape

    def complete(self, signature: Signature, seed: int) -> Self:
        if len(signature.input_shape) != 3 or signature.output_shape != signature.input_shape:
            raise UserError(f"{self.name} reconstructs its input images; use task.name=tokenization")
        return self.require(input_shape=signature.input_shape)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Images) -> Images:
        return x + self.second(nn.functional.gelu(self.first(nn.functional.gelu(x))))


class Codebook(nn.Module):
    """K unit vectors, each the moving average of the vectors nearest to it."""

    codes: Tensor
    counts: Tensor
    sums: Tensor

    def __init__(self, config: VQTokenizerConfig) -> None:
        super().__init__()
        self.decay, self.revive_below = config.decay, config.revive_below
        drawn = nn.functional.normalize(torch.randn(config.codes, config.d_code), dim=1)
        self.register_buffer("codes", drawn)
        self.register_buffer("counts", torch.zeros(config.codes))  # so that the first batch replaces every code
        self.register_buffer("sums", torch.zeros(config.codes, config.d_code))

    def nearest(self, encoded: Codes) -> Int[Tensor, "batch down across"]:
        return torch.einsum("bdhw,kd->bhwk", encoded, self.codes.to(encoded.dtype)).argmax(dim=-1)

    def look_up(self, tokens: Int[Tensor, "batch down across"]) -> Codes:
        return self.codes[tokens].movedim(-1, 1)

    @torch.no_grad()
    def learn(self, encoded: Codes, tokens: Int[Tensor, "batch down across"]) -> None:
        """Move the codes towards the vectors that chose them, and replace rarely chosen ones."""
        vectors = encoded.movedim(1, -1).flatten(0, 2).to(self.sums.dtype)
        counts, sums = torch.zeros_like(self.counts), torch.zeros_like(self.sums)
        counts.index_add_(0, tokens.flatten(), torch.ones_like(vectors[:, 0]))
        sums.index_add_(0, tokens.flatten(), vectors)
        several = torch.distributed.is_available() and torch.distributed.is_initialized()
        if several:
            torch.distributed.all_reduce(counts)
            torch.distributed.all_reduce(sums)
        self.counts.lerp_(counts, 1 - self.decay)
        self.sums.lerp_(sums, 1 - self.decay)
        mean = counts.sum() / len(counts)
        dead = (self.counts < self.revive_below * mean)[:, None]
        # Every step seeds the global generator, so all processes draw alike; the vectors of the first are used.
        chosen = vectors[torch.randint(len(vectors), (len(counts),), device=vectors.device)]
        if several:
            torch.distributed.broadcast(chosen, 0)
        self.sums.copy_(torch.where(dead, chosen * mean, self.sums))
        self.counts.copy_(torch.where(dead[:, 0], mean, self.counts))
        self.codes.copy_(nn.functional.normalize(self.sums, dim=1))


class VQTokenizer(nn.Module):
    Config = VQTokenizerConfig

    def __init__(self, config: VQTokenizerConfig) -> None:
        super().__init__()
        self.config = config
        self.input_shape = config.image
        self.grid = (self.input_shape[1] // config.stride, self.input_shape[2] // config.stride)
        levels = range(config.stride.bit_length() - 1)  # from the size of the tokens to the largest
        widths = [config.width >> level for level in reversed(levels)]
        before, encoder, decoder = self.input_shape[0], [], list[nn.Module]()
        for width in widths:
            blocks = [Block(width) for _ in range(config.blocks)]
            encoder += [nn.Conv2d(before, width, 2, stride=2), *blocks]
            again = [Block(width) for _ in range(config.blocks)]
            decoder = [*again, nn.GELU(), nn.ConvTranspose2d(width, before, 2, stride=2), *decoder]
            before = width
        whiten = nn.BatchNorm2d(config.d_code, affine=False)  # without it all outputs start in a narrow cone
        self.encoder = nn.Sequential(*encoder, nn.GELU(), nn.Conv2d(before, config.d_code, 1), whiten)
        self.codebook = Codebook(config)
        self.decoder = nn.Sequential(nn.Conv2d(config.d_code, before, 3, padding=1), *decoder)

    def encode(self, x: Images) -> Codes:
        return nn.functional.normalize(self.encoder(2 * x - 1), dim=1)

    def decode(self, codes: Codes) -> Images:
        return (self.decoder(codes * codes.shape[1] ** 0.5) + 1) / 2

    def tokens(self, x: Images) -> Int[Tensor, "batch positions"]:
        """Codes from 0 to K − 1, row by row."""
        return self.codebook.nearest(self.encode(x)).flatten(1)

    def pictures(self, tokens: Int[Tensor, "batch positions"]) -> Images:
        """The images that the tokens represent."""
        return self.decode(self.codebook.look_up(tokens.unflatten(1, self.grid)))

    def forward(self, x: Images) -> Images:
        *_, (_, y) = self.trajectory(x)
        return y

    def trajectory(self, x: Images) -> Iterator[tuple[str, Tensor]]:
        encoded = self.encode(x)
        yield "encoded", encoded
        tokens = self.codebook.nearest(encoded)
        yield "tokens", tokens
        if self.training and torch.is_grad_enabled():
            self.codebook.learn(encoded, tokens)
        codes = self.codebook.look_up(tokens).to(encoded.dtype)
        yield "codes", codes
        # Straight-through estimator: the codes' gradient is passed to the encoder.
        yield "output", self.decode(encoded + (codes - encoded).detach())


VARIANTS: dict[str, dict[str, Any]] = {
    "cifar": {"name": "vq_tokenizer", "input_shape": (3, 32, 32)},
    "f16-1024": {
        "name": "vq_tokenizer", "input_shape": (3, 256, 256), "codes": 1024, "stride": 16, "width": 256, "blocks": 2,
        "d_code": 32,
    },
}  # fmt: skip
"""For CIFAR-10 on a CPU, and with the tokens of the public VQGAN."""
