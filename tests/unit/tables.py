"""Tables on disk, from columns."""


def write_csv(path, columns, header=True):
    rows = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    path.write_text("\n".join(([",".join(columns)] if header else []) + rows) + "\n")


def write_parquet(path, columns):
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), path)
