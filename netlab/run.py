"""The only orchestration of effects."""
