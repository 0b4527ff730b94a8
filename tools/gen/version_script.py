"""The linker's version script: libcuda.so.1 exports the driver API and nothing else."""


def generate(functions):
    symbols = sorted(symbol for function in functions for symbol in function.symbols)
    return ["{\n  global:\n" + "".join(f"    {symbol};\n" for symbol in symbols) + "  local: *;\n};\n"]
