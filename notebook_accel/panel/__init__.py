"""A panel in the notebook for what a training runs on."""

from notebook_accel.panel.panel import ConfigPanel, config_panel

__all__ = ["ConfigPanel", "config_panel"]
