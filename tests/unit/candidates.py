"""Candidates of a study by their cost and quality alone."""

from __future__ import annotations

from hypothesis import strategies as st

from isthmus.studies.fronts import Candidate


def make_candidate(
    cost: int,
    quality: float,
    architecture: str = "a",
    identity: str = "0",
    spread: float = 0.0,
    validation: float | None = None,
    maximise: bool = True,
) -> Candidate:
    return Candidate(
        source="digits",
        task="denoise",
        architecture=architecture,
        settings={},
        learning_rate=1e-3,
        objective="psnr",
        maximise=maximise,
        params=cost,
        trainable_params=cost,
        macs=cost,
        seeds=(0, 1),
        run_ids=(identity,),
        metrics={"psnr": (quality - spread, quality + spread)},
        validation=quality if validation is None else validation,
        wall_seconds=1.0,
    )


points = st.lists(
    st.builds(
        make_candidate,
        cost=st.integers(1, 12),
        quality=st.integers(0, 12).map(float),
        architecture=st.sampled_from("ab"),
        identity=st.uuids().map(str),
        spread=st.sampled_from((0.0, 0.5, 2.0)),
        validation=st.integers(0, 12).map(float),
    ),
    max_size=14,
)
