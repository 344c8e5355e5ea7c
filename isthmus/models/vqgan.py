"""The public VQGAN of ImageNet, which encodes each 16×16 pixels as one of 1024 tokens.

Paper: Taming Transformers for High-Resolution Image Synthesis (Esser, Rombach, Ommer 2021). Names and shapes of the
weights are those of the authors' ``vqgan_imagenet_f16_1024``, which ``isthmus.training.tokenizers`` reads. The network
is not trained here, so it is not registered as a model.

Differs from the paper: the discriminator and the perceptual loss, which the authors' file also holds, are left out.
"""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor, nn

from isthmus.core.errors import UserError

Features = Float[Tensor, "batch _ _ _"]

TITLE = "VQGAN f16/1024"
STRIDE = 16
CODES = 1024
D_CODE = 256
WIDTHS = (128, 128, 256, 256, 512)
"""Channels at each size of the picture, from the largest; the smallest also has attention."""
BLOCKS = 2


def norm(width: int) -> nn.GroupNorm:
    return nn.GroupNorm(32, width, eps=1e-6)


def conv(before: int, after: int, side: int = 3) -> nn.Conv2d:
    return nn.Conv2d(before, after, side, padding=side // 2)


class Block(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = norm(before), conv(before, after)
        self.norm2, self.conv2 = norm(after), conv(after, after)
        if before != after:
            self.nin_shortcut = conv(before, after, 1)

    def forward(self, x: Features) -> Features:
        hidden = self.conv1(nn.functional.silu(self.norm1(x)))
        hidden = self.conv2(nn.functional.silu(self.norm2(hidden)))
        skipped: Tensor = self.nin_shortcut(x) if hasattr(self, "nin_shortcut") else x
        return skipped + hidden


class Attention(nn.Module):
    """One head over all positions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = norm(width)
        self.q, self.k, self.v, self.proj_out = (conv(width, width, 1) for _ in range(4))

    def forward(self, x: Features) -> Features:
        normed = self.norm(x)
        query, key, value = (part(normed).flatten(2).mT for part in (self.q, self.k, self.v))
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        return x + self.proj_out(mixed.mT.unflatten(2, x.shape[2:]))


class Downsample(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, stride=2)

    def forward(self, x: Features) -> Features:
        return self.conv(nn.functional.pad(x, (0, 1, 0, 1)))  # right and below only


class Upsample(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = conv(width, width)

    def forward(self, x: Features) -> Features:
        return self.conv(nn.functional.interpolate(x, scale_factor=2.0, mode="nearest"))


class Level(nn.Module):
    """Blocks at one size of the picture, with attention after each at the smallest size, then a change of size."""

    def __init__(
        self, before: int, after: int, blocks: int, attends: bool, down: bool = False, up: bool = False
    ) -> None:
        super().__init__()
        self.block = nn.ModuleList([Block(before if place == 0 else after, after) for place in range(blocks)])
        self.attn = nn.ModuleList([Attention(after) for _ in range(blocks if attends else 0)])
        self.downsample = Downsample(after) if down else nn.Identity()
        self.upsample = Upsample(after) if up else nn.Identity()

    def forward(self, x: Features) -> Features:
        for place, block in enumerate(self.block):
            x = block(x)
            if self.attn:
                x = self.attn[place](x)
        return self.upsample(self.downsample(x))


class Middle(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.block_1, self.attn_1, self.block_2 = Block(width, width), Attention(width), Block(width, width)

    def forward(self, x: Features) -> Features:
        return self.block_2(self.attn_1(self.block_1(x)))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        last = len(WIDTHS) - 1
        self.conv_in = conv(3, WIDTHS[0])
        self.down = nn.ModuleList(
            Level(WIDTHS[max(0, n - 1)], width, BLOCKS, n == last, down=n < last) for n, width in enumerate(WIDTHS)
        )
        self.mid = Middle(WIDTHS[-1])
        self.norm_out, self.conv_out = norm(WIDTHS[-1]), conv(WIDTHS[-1], D_CODE)

    def forward(self, x: Features) -> Features:
        x = self.conv_in(x)
        for level in self.down:
            x = level(x)
        return self.conv_out(nn.functional.silu(self.norm_out(self.mid(x))))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        last = len(WIDTHS) - 1
        self.conv_in = conv(D_CODE, WIDTHS[-1])
        self.mid = Middle(WIDTHS[-1])
        self.up = nn.ModuleList(
            Level(WIDTHS[min(last, n + 1)], width, BLOCKS + 1, n == last, up=n > 0) for n, width in enumerate(WIDTHS)
        )
        self.norm_out, self.conv_out = norm(WIDTHS[0]), conv(WIDTHS[0], 3)

    def forward(self, x: Features) -> Features:
        x = self.mid(self.conv_in(x))
        for level in reversed(self.up):
            x = level(x)
        return self.conv_out(nn.functional.silu(self.norm_out(x)))


class Quantizer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CODES, D_CODE)

    def nearest(self, encoded: Features) -> Int[Tensor, "batch positions"]:
        vectors, codes = encoded.flatten(2).mT, self.embedding.weight
        # ‖z − e‖² without ‖z‖², which all codes share.
        return (codes.square().sum(dim=1) - 2 * vectors @ codes.T).argmin(dim=-1)


class VQGAN(nn.Module):
    """Images in [0, 1] to tokens, row by row, and back."""

    codes = CODES

    def __init__(self, input_shape: tuple[int, int, int] = (3, 256, 256)) -> None:
        super().__init__()
        channels, height, width = input_shape
        if channels != 3 or height % STRIDE or width % STRIDE:
            raise UserError(
                f"the VQGAN takes images of 3 colours with sides that {STRIDE} divides, such as 256 pixels; "
                f"these have {channels} and {height}×{width} pixels"
            )
        self.input_shape = input_shape
        self.grid = (height // STRIDE, width // STRIDE)
        self.encoder, self.decoder = Encoder(), Decoder()
        self.quantize = Quantizer()
        self.quant_conv, self.post_quant_conv = conv(D_CODE, D_CODE, 1), conv(D_CODE, D_CODE, 1)

    def tokens(self, x: Features) -> Int[Tensor, "batch positions"]:
        return self.quantize.nearest(self.quant_conv(self.encoder(2 * x - 1)))

    def pictures(self, tokens: Int[Tensor, "batch positions"]) -> Features:
        codes = self.quantize.embedding(tokens.unflatten(1, self.grid)).movedim(-1, 1)
        return (self.decoder(self.post_quant_conv(codes)) + 1) / 2
