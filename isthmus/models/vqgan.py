"""The public VQGAN of ImageNet, which encodes each 16×16 pixels as one of 1024 tokens.

Paper: Taming Transformers for High-Resolution Image Synthesis (Esser, Rombach, Ommer 2021). Names and shapes of the
weights are those of the authors' ``vqgan_imagenet_f16_1024``, which ``isthmus.training.tokenizers`` reads. The network
is not trained here, so it is not registered as a model.

Differs from the paper: the discriminator and the perceptual loss, which the authors' file also holds, are left out.
"""

from __future__ import annotations

from collections import OrderedDict

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


def chain(**modules: nn.Module) -> nn.Sequential:
    """Modules in the order of computation, with their published names."""
    return nn.Sequential(OrderedDict(modules))


class Block(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = norm(before), conv(before, after)
        self.norm2, self.conv2 = norm(after), conv(after, after)
        self.nin_shortcut = nn.Identity() if before == after else conv(before, after, 1)

    def forward(self, x: Features) -> Features:
        hidden = self.conv1(nn.functional.silu(self.norm1(x)))
        return self.nin_shortcut(x) + self.conv2(nn.functional.silu(self.norm2(hidden)))


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


class Level(nn.Module):
    """Blocks at one size of the picture, with attention after each at the smallest size, then a change of size."""

    def __init__(self, before: int, after: int, blocks: int, smallest: bool, down: bool, up: bool) -> None:
        super().__init__()
        self.block = nn.ModuleList([Block(before if place == 0 else after, after) for place in range(blocks)])
        self.attn = nn.ModuleList([Attention(after) if smallest else nn.Identity() for _ in range(blocks)])
        pad = nn.ZeroPad2d((0, 1, 0, 1))  # right and below
        self.downsample = chain(pad=pad, conv=nn.Conv2d(after, after, 3, stride=2)) if down else nn.Identity()
        self.upsample = chain(enlarge=nn.Upsample(scale_factor=2.0), conv=conv(after, after)) if up else nn.Identity()

    def forward(self, x: Features) -> Features:
        for block, attention in zip(self.block, self.attn, strict=True):
            x = attention(block(x))
        return self.upsample(self.downsample(x))


def middle() -> nn.Sequential:
    width = WIDTHS[-1]
    return chain(block_1=Block(width, width), attn_1=Attention(width), block_2=Block(width, width))


def encoder() -> nn.Sequential:
    last, befores = len(WIDTHS) - 1, (WIDTHS[0], *WIDTHS)
    down = (Level(befores[n], width, BLOCKS, n == last, n < last, False) for n, width in enumerate(WIDTHS))
    return chain(
        conv_in=conv(3, WIDTHS[0]), down=nn.Sequential(*down), mid=middle(),
        norm_out=norm(WIDTHS[-1]), silu=nn.SiLU(), conv_out=conv(WIDTHS[-1], D_CODE),
    )  # fmt: skip


def decoder() -> nn.Sequential:
    last, befores = len(WIDTHS) - 1, (*WIDTHS[1:], WIDTHS[-1])
    up = {str(n): Level(befores[n], WIDTHS[n], BLOCKS + 1, n == last, False, n > 0) for n in range(last, -1, -1)}
    return chain(
        conv_in=conv(D_CODE, WIDTHS[-1]), mid=middle(), up=chain(**up),
        norm_out=norm(WIDTHS[0]), silu=nn.SiLU(), conv_out=conv(WIDTHS[0], 3),
    )  # fmt: skip


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
        self.encoder, self.decoder = encoder(), decoder()
        self.quantize = chain(embedding=nn.Embedding(CODES, D_CODE))
        self.quant_conv, self.post_quant_conv = conv(D_CODE, D_CODE, 1), conv(D_CODE, D_CODE, 1)

    def tokens(self, x: Features) -> Int[Tensor, "batch positions"]:
        """The nearest codes."""
        vectors = self.quant_conv(self.encoder(2 * x - 1)).flatten(2).mT
        codes = self.quantize.get_parameter("embedding.weight")
        # ‖z − e‖² without ‖z‖², which all codes share.
        return (codes.square().sum(dim=1) - 2 * vectors @ codes.T).argmin(dim=-1)

    def pictures(self, tokens: Int[Tensor, "batch positions"]) -> Features:
        codes = self.quantize(tokens.unflatten(1, self.grid)).movedim(-1, 1)
        return (self.decoder(self.post_quant_conv(codes)) + 1) / 2
