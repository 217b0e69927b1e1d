"""Supervised heads on any features: VSLNet for grounding, ActionFormer for localization, a linear
probe for classification.
"""
