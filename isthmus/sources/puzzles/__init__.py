"""The game of Sudoku: boards and their symmetries, an exact solver, and puzzles with a unique solution."""
