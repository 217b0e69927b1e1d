"""Text encoders: sentences to vectors, frozen, with LoRA or fully trained."""
