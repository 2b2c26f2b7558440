"""The paths of admin workers."""

from fastapi import APIRouter

router = APIRouter()
