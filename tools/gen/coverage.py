"""later"""
def generate(x): return []
def load(*a): return None
