"""The calls of Azure Personalizer that the service offers with --personalizer: see docs/personalizer.md."""
