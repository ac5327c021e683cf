"""The handlers of the operations. They get requests that are authorized and decoded."""
