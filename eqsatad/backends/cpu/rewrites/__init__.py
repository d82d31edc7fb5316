"""Loop programs rewritten for the CPU, one change a module; `cpu.prepare` makes them in order."""
