"""HiERO's network, its losses and its clustering. Needs only torch, numpy and scipy."""
