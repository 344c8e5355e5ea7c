"""How a branch's update joins the stream; one file per family, found through ``isthmus/core/registry.py``.

Let u_0 = x_0 be the embedded input, r_l what branch l reads, and u_{l+1} = f_l(r_l) its update. Every pathway says

    r_l = Σ_{i ≤ l} A_{l,i} u_i ,        output = Σ_i A_{L,i} u_i

with a lower-triangular matrix A. Pathways differ in A alone: it may be fixed, learned, or computed from the row; its
entries may be numbers, diagonal matrices or operators.
"""
