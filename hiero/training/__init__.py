"""Training: the step, plain and captured as a CUDA graph, the loop around it, and a run from files
to a model folder.
"""
