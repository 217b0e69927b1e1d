"""Supervised heads on any features: VSLNet (grounding), ActionFormer (localization) and a linear probe."""
