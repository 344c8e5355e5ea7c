"""Parameter counts to the unit."""

EXACT = {  # as timm's ViTs of these sizes have them, with a head for 196 classes
    "tiny-conventional": 5_562_244,
    "tiny-hourglass": 4_927_732,
    "small-conventional": 21_741_124,
    "small-hourglass": 20_643_460,
    "large-conventional": 303_502_532,
    "large-hourglass": 297_066_436,
}
