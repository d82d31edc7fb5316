"""LLVM IR as text: from a function for each nest down to single instructions."""
