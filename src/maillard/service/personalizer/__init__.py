"""The calls of Azure Personalizer, offered with --personalizer; see docs/how-to/personalizer.md."""
